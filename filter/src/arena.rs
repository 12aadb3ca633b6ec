//! Memory for values that the host returns, kept from request to request: the host asks for it by `malloc`, several times in each.

use core::cell::{Cell, UnsafeCell};

/// Values are handed out one behind the other. As soon as none is in use any more the memory is free again as a whole.
#[derive(Debug)]
pub struct Arena {
    memory: UnsafeCell<[u8; ARENA_BYTES]>,
    taken: Cell<usize>,
    values: Cell<usize>,
}

/// As much as the headers of nearly every request take; what does not fit is allocated by itself.
pub const ARENA_BYTES: usize = 16 << 10;

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl Arena {
    /// An arena that nothing was taken from.
    #[must_use]
    pub const fn new() -> Self {
        Self { memory: UnsafeCell::new([0; ARENA_BYTES]), taken: Cell::new(0), values: Cell::new(0) }
    }

    /// Where a value of `size` bytes may be written until it is released; `None` if there is no room.
    pub fn allocate(&self, size: usize) -> Option<*mut u8> {
        // Not even an empty value starts where the memory ends: by where it starts a value is known as the arena's.
        let start = Some(self.taken.get()).filter(|start| *start < ARENA_BYTES)?;
        let end = start.checked_add(size).filter(|end| *end <= ARENA_BYTES)?;
        self.taken.set(end);
        self.values.set(self.values.get() + 1);
        Some(self.memory.get().cast::<u8>().wrapping_add(start))
    }

    /// Ends the use of the value at `data`; `false` if it is none of the arena's.
    pub fn release(&self, data: *const u8) -> bool {
        let memory = self.memory.get().cast::<u8>().cast_const();
        let ours = (memory..memory.wrapping_add(ARENA_BYTES)).contains(&data);
        if ours {
            let left = self.values.get().saturating_sub(1);
            self.values.set(left);
            if left == 0 {
                self.taken.set(0);
            }
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_one_behind_the_other_until_none_is_left() {
        let arena = Arena::new();
        let [one, empty, other] = [100, 0, 50].map(|size| arena.allocate(size).unwrap());
        assert_eq!([empty, other], [one.wrapping_add(100); 2]);
        assert_eq!([one, other].map(|value| arena.release(value)), [true; 2]);
        assert_eq!(arena.allocate(1).unwrap(), one.wrapping_add(150), "one is in use");
        assert_eq!([empty, other].map(|value| arena.release(value)), [true; 2]);
        assert_eq!(arena.allocate(1).unwrap(), one, "none was");
    }

    #[test]
    fn what_does_not_fit_or_is_no_value_of_its_is_refused() {
        let arena = Arena::new();
        assert!([ARENA_BYTES + 1, usize::MAX].into_iter().all(|size| arena.allocate(size).is_none()));
        let whole = arena.allocate(ARENA_BYTES).unwrap();
        assert!([0, 1].into_iter().all(|size| arena.allocate(size).is_none()));
        assert!(!arena.release(whole.wrapping_add(ARENA_BYTES)));
        assert!(arena.release(whole));
    }
}
