//! Where filters spend their time, as a profile that the Firefox Profiler opens.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    process,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile, ReferenceTimestamp, SamplingInterval,
    ThreadHandle, Timestamp,
};
use host_sim::{Clock, Sample, VmName};

use super::Error;

/// Samples as they come. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Arc<Mutex<Vec<Sample>>>);

impl Samples {
    pub(super) fn add(&self, sample: Sample) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
    }

    /// Writes those since `start` to a file.
    pub(super) fn write(
        &self,
        path: &Path,
        product: &str,
        clock: &Clock,
        start: Duration,
    ) -> Result<(), Error> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = samples.iter().filter(|sample| sample.at >= start);
        let began = clock.wall().saturating_sub(clock.monotonic().saturating_sub(start));
        let profile = profile(since, product, began, start);
        let unwritten = |error: &dyn std::fmt::Display| Error::Failed(format!("{}: {error}", path.display()));
        let mut file = BufWriter::new(File::create(path).map_err(|error| unwritten(&error))?);
        serde_json::to_writer(&mut file, &profile).map_err(|error| unwritten(&error))?;
        file.flush().map_err(|error| unwritten(&error))
    }
}

/// A profile with a thread for each VM. It began at `began` since 1970, which is `start` on the samples' clock.
fn profile<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    product: &str,
    began: Duration,
    start: Duration,
) -> Profile {
    let reference = ReferenceTimestamp::from_duration_since_unix_epoch(began);
    let mut profile = Profile::new(product, reference, SamplingInterval::from(Sample::INTERVAL));
    profile.set_symbolicated(true);
    let zero = Timestamp::from_nanos_since_reference(0);
    let process = profile.add_process(product, process::id(), zero);
    let mut threads: BTreeMap<VmName, ThreadHandle> = BTreeMap::new();
    for sample in samples {
        let number = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        let thread = *threads.entry(sample.vm).or_insert_with(|| {
            let thread = profile.add_thread(process, number, zero, number == 0);
            profile.set_thread_name(thread, &sample.vm.to_string());
            thread
        });
        // The outermost first.
        let frames: Vec<FrameInfo> = sample
            .backtrace
            .frames()
            .iter()
            .rev()
            .map(|frame| FrameInfo {
                frame: Frame::Label(profile.intern_string(&frame.function)),
                category_pair: CategoryHandle::OTHER.into(),
                flags: FrameFlags::empty(),
            })
            .collect();
        let stack = profile.intern_stack_frames(thread, frames.into_iter());
        let nanos = u64::try_from(sample.at.saturating_sub(start).as_nanos()).unwrap_or(u64::MAX);
        let at = Timestamp::from_nanos_since_reference(nanos);
        profile.add_sample(thread, at, stack, CpuDelta::from(Sample::INTERVAL), 1);
    }
    profile
}
