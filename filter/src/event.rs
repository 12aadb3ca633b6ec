//! What happens and is counted, apart from requests: the events, and their sums in a VM.

use crate::config::Config;

/// Defines an enum by a table of its variants, each with its properties.
macro_rules! table {
    ($(#[$of_enum:meta])* pub enum $name:ident: $properties:ty {
        $($(#[$of_variant:meta])* $variant:ident = $value:expr,)+
    }) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$of_variant])* $variant,)+ }

        impl $name {
            /// All of them, each at the place that is its number.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            fn properties(self) -> $properties {
                match self { $(Self::$variant => $value,)+ }
            }
        }
    };
}
pub(crate) use table;

table! {
    /// Something that happens and is counted, apart from requests: the name of its counter, and whether it may occur under a configuration.
    pub enum Event: (&'static str, fn(&Config) -> bool) {
        /// A poll of the directory changed the list.
        DirectoryChanged = ("weir.result=.=changed;.;directory_polls_total", has_directory),
        /// A poll of the directory brought no change.
        DirectoryUnchanged = ("weir.result=.=unchanged;.;directory_polls_total", has_directory),
        /// A poll of the directory was not sent, or its answer has another status than it should.
        DirectoryFailed = ("weir.result=.=failed;.;directory_polls_total", has_directory),
        /// A poll of the directory had an answer that is not a page.
        DirectoryMalformed = ("weir.result=.=malformed;.;directory_polls_total", has_directory),
        /// A poll of the directory had no answer, or one that the host has broken off.
        DirectoryBrokenOff = ("weir.result=.=broken_off;.;directory_polls_total", has_directory),
        /// A byte of an answer of the directory.
        DirectoryBytes = ("weir.directory.bytes_total", has_directory),
        /// A row of the directory is malformed, or names a plan or class that is not configured.
        DirectorySkipped = ("weir.directory.skipped_total", has_directory),
        /// A row of the directory gives its organisation another billing anchor than an earlier row.
        DirectoryApart = ("weir.directory.apart_total", has_directory),
        /// A VM began to poll the directory.
        DirectoryLed = ("weir.directory.leaders_total", has_directory),
        /// The response's status gave back what the request was charged.
        CostRefunded = ("weir.cost.refunded_total", Config::settles),
        /// The actual cost of a request did not become known, so that its reserve stands.
        CostUnknown = ("weir.cost.unknown_total", Config::settles),
        /// A settlement, or the end of a request in flight, could not be stored, so that the charge stands.
        CostUnsettled = ("weir.cost.unsettled_total", |_| true),
        /// A caller got its charge back, because its organisation did not admit the request.
        OrganisationGivenBack = ("weir.organisation.given_back_total", has_organisations),
        /// A malformed entry of the counters was begun again.
        CountersRepaired = ("weir.counters.repaired_total", |_| true),
        /// A live count of a window that no quota has any more lost its place in a full record.
        CountsDropped = ("weir.counters.dropped_total", |_| true),
        /// A call of the ledger was answered.
        FleetCallAnswered = ("weir.result=.=answered;.;fleet_calls_total", in_fleet),
        /// A call of the ledger had no good answer.
        FleetCallFailed = ("weir.result=.=failed;.;fleet_calls_total", in_fleet),
        /// The ledger answered a statement with a share.
        FleetStatementAnswered = ("weir.result=.=answered;.;fleet_statements_total", in_fleet),
        /// The ledger answered a statement that the counter was reset.
        FleetStatementReset = ("weir.result=.=reset;.;fleet_statements_total", in_fleet),
        /// The ledger's store settles: it noted a statement and granted nothing.
        FleetStatementSettling = ("weir.result=.=settling;.;fleet_statements_total", in_fleet),
        /// The ledger refused a statement.
        FleetStatementRefused = ("weir.result=.=refused;.;fleet_statements_total", in_fleet),
        /// A statement had no answer.
        FleetStatementUnanswered = ("weir.result=.=unanswered;.;fleet_statements_total", in_fleet),
        /// A request was decided from what the gateway holds.
        FleetDecidedByShare = ("weir.by=.=share;.;fleet_decisions_total", in_fleet),
        /// A request was decided by an answer of the ledger: its own, or a lately given one that nothing is left.
        FleetDecidedByLedger = ("weir.by=.=ledger;.;fleet_decisions_total", in_fleet),
        /// A request was decided by `on_unavailable`.
        FleetDecidedByPolicy = ("weir.by=.=on_unavailable;.;fleet_decisions_total", in_fleet),
        /// The ledger refused a statement because the two clocks are too far apart.
        FleetClock = ("weir.fleet.clock_total", in_fleet),
        /// A request was refused because too many waited.
        FleetPlacesFull = ("weir.fleet.places_full_total", in_fleet),
        /// What a request has used was not reported, because the service refused it or it was too much to keep.
        UsageLost = ("weir.usage.lost_total", reports_usage),
    }
}

impl Event {
    /// The name of the counter.
    #[must_use]
    pub fn metric(self) -> &'static str {
        self.properties().0
    }

    /// Whether the event may occur.
    #[must_use]
    pub fn is_possible(self, config: &Config) -> bool {
        self.properties().1(config)
    }
}

fn has_directory(config: &Config) -> bool {
    config.settings.directory.is_some()
}

/// Organisations may come with the directory.
fn has_organisations(config: &Config) -> bool {
    has_directory(config) || config.subscribers.has_organisations()
}

fn reports_usage(config: &Config) -> bool {
    config.settings.usage.is_some()
}

fn in_fleet(config: &Config) -> bool {
    config.fleet.is_some()
}

/// Sums of events.
#[derive(Debug, Default)]
pub struct EventSums([u32; Event::ALL.len()]);

impl EventSums {
    /// Adds to an event's sum.
    pub fn add(&mut self, event: Event, times: impl TryInto<u32>) {
        if let Some(sum) = self.0.get_mut(event as usize) {
            *sum = sum.saturating_add(times.try_into().unwrap_or(u32::MAX));
        }
    }

    /// Adds to all sums, in the order of [`Event::ALL`].
    pub fn add_all(&mut self, sums: [u32; Event::ALL.len()]) {
        for (sum, times) in self.0.iter_mut().zip(sums) {
            *sum = sum.saturating_add(times);
        }
    }

    /// Takes the sums since the last time, in the order of [`Event::ALL`].
    pub fn drain(&mut self) -> [u32; Event::ALL.len()] {
        core::mem::take(&mut self.0)
    }
}
