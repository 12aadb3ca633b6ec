//! One table of questions, put to the simulator and to a real Envoy by the guest `questions`, and the answers that differ.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use host_sim::{EnvoyVersion, Plugin};
use host_sim_cli::against::{self, ChainedFilter, Contender, Envoy, Simulator};
use host_sim_cli::scenario::{Call, Scenario};

use crate::{artifacts, clock, differential};

/// How long both logs may take to have the same questions in them.
const SETTLING: Duration = Duration::from_secs(5);

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was answered to each question: its place (set, callback and part) and its text. A callback that runs several times, or in several
/// VMs, may be answered in several ways.
type Answers = BTreeMap<(String, String), BTreeSet<String>>;

/// A question that the two answer differently; an answer is empty where it was not asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The set of questions, the callback and the part of it.
    pub place: String,
    /// The question.
    pub question: String,
    /// The simulator's answer.
    pub here: String,
    /// Envoy's answer.
    pub there: String,
}

/// What came of asking.
#[derive(Debug)]
pub struct Swept {
    /// How many questions were asked.
    pub questions: usize,
    /// Those of them that were answered differently.
    pub differences: Vec<Difference>,
}

/// The filter that asks `questions`.
fn filter(questions: &str) -> anyhow::Result<ChainedFilter> {
    filter_of(std::fs::read(artifacts::guest_wasm("questions")?)?, questions)
}

fn filter_of(wasm: Vec<u8>, questions: &str) -> anyhow::Result<ChainedFilter> {
    let module = artifacts::compiled(&wasm)?;
    let plugin = Plugin::new("the plugin's").name("sweep").root_id("asker").vm_id("vm");
    let plugin = plugin.vm_configuration(questions.to_owned());
    Ok(ChainedFilter { wasm, module, plugin, any: None })
}

/// Requests from their text, a list.
///
/// # Errors
/// When it is none.
pub fn requests(text: &str) -> anyhow::Result<Vec<Call>> {
    Ok(serde_saphyr::from_str(text)?)
}

/// An answer without what is another in each run: how long an upstream took, and the order of a map that is a property, which is any in
/// Envoy.
fn normalised(question: &str, answer: &str) -> String {
    const TIME: &str = "x-envoy-upstream-service-time=";
    let answer = match answer.split_once(TIME) {
        Some((before, after)) => {
            format!("{before}{TIME}…{}", after.trim_start_matches(|digit: char| digit.is_ascii_digit()))
        }
        None => answer.to_owned(),
    };
    let entries = answer.strip_prefix("0 {").and_then(|rest| rest.strip_suffix('}'));
    match entries.filter(|_| question.starts_with("proxy_get_property")) {
        Some(entries) => {
            let mut entries: Vec<_> = entries.split("; ").collect();
            entries.sort_unstable();
            format!("0 {{{}}}", entries.join("; "))
        }
        None => answer,
    }
}

fn answers(log: &[String]) -> Answers {
    let mut answers = Answers::new();
    for line in log {
        let mut parts = line.splitn(3, " | ").map(str::to_owned);
        if let (Some(place), Some(question), Some(answer)) = (parts.next(), parts.next(), parts.next()) {
            let answer = normalised(&question, &answer);
            answers.entry((place, question)).or_default().insert(answer);
        }
    }
    answers
}

/// Runs a scenario with a guest that asks these questions in both gateways.
///
/// # Errors
/// With every difference between what the gateways did, and when one does not start.
pub fn compare(version: EnvoyVersion, questions: &str, scenario: &Scenario) -> anyhow::Result<()> {
    let mut filter = filter(questions)?;
    filter.plugin.failure_policy = scenario.failure_policy.unwrap_or_default();
    differential::compare_chain("sweep", scenario, &[filter], version)
}

/// Puts the questions to the simulator and to an Envoy, by these requests, an update of the configuration and the gateways' ends.
///
/// # Errors
/// When a gateway does not start, or HTTP cannot carry a request.
pub fn sweep(
    version: EnvoyVersion,
    questions: &str,
    scenario: &Scenario,
    requests: &[Call],
) -> anyhow::Result<Swept> {
    let filters = [filter(questions)?];
    let mut simulator = Simulator::start(scenario, &filters, version)?;
    let mut envoy = Envoy::start(scenario, &filters, &differential::envoy(version)?)?;
    let settle = |simulator: &Simulator, envoy: &Envoy| {
        // Whether both have been asked the same is a part of the question.
        let _ = clock::eventually("the same questions", SETTLING, || {
            answers(&simulator.log()).keys().eq(answers(&envoy.log()).keys()).then_some(())
        });
    };
    for call in requests {
        for asked in [against::ask(&simulator, call, PATIENCE), against::ask(&envoy, call, PATIENCE)] {
            asked.with_context(|| call.path.clone())?;
        }
        settle(&simulator, &envoy);
    }
    for updated in [simulator.update(b"another")?, envoy.update(b"another")?] {
        ensure!(updated, "an update is refused");
    }
    settle(&simulator, &envoy);
    let (here, there) = (answers(&simulator.end()?), answers(&envoy.end()?));
    let asked: BTreeSet<_> = here.keys().chain(there.keys()).collect();
    let questions = asked.len();
    let shown = |answers: &Answers, question: &(String, String)| {
        answers.get(question).map(|answers| Vec::from_iter(answers.clone()).join(" or ")).unwrap_or_default()
    };
    let differ = |asked: &(String, String)| {
        let (place, question) = asked.clone();
        Difference { place, question, here: shown(&here, asked), there: shown(&there, asked) }
    };
    let differences = asked.into_iter().map(differ).filter(|found| found.here != found.there).collect();
    Ok(Swept { questions, differences })
}

/// Whether the simulator, and whether an Envoy, loads a module.
///
/// # Errors
/// When the text is no module.
pub fn loads(version: EnvoyVersion, text: &str) -> anyhow::Result<[bool; 2]> {
    let filters = [filter_of(wat::parse_str(text)?, "")?];
    let scenario = differential::scenario("steps: []")?;
    let here = Simulator::start(&scenario, &filters, version).is_ok();
    Ok([here, Envoy::start(&scenario, &filters, &differential::envoy(version)?).is_ok()])
}
