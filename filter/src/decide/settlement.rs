//! Settling what a request was charged, once its response or the end of its stream decides it.
//!
//! A response is judged by its HTTP status, and that of a gRPC request by its gRPC status: in the headers if the answer has nothing else, else in
//! the trailers. A cost is read from a header, a trailer, or metadata when the stream ends.

use super::counting::{Charged, Context};
use super::host::Host;
use super::limiter::Limiter;
use crate::config::{Class, CostSource};
use crate::count::settle::Due;
use crate::event::Event;
use crate::request::header_pairs::HeaderPairs;

/// What decides the charge of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment<'r> {
    /// The response's headers, serialized.
    Headers(&'r [u8]),
    /// The response's trailers, serialized.
    Trailers(&'r [u8]),
    /// The end of the stream.
    End,
}

impl Limiter {
    /// Settles a charge that is still open, if this moment decides it: a refund, or a cost that is stated. At the end, the request is in flight no
    /// longer. `charged` then says where the client stands.
    #[cold]
    pub fn settle(&mut self, host: &mut impl Host, charged: &mut Charged, moment: Moment<'_>) {
        self.context(host).settle_at(charged, moment);
    }
}

impl<H: Host> Context<'_, H> {
    fn settle_at(&mut self, charged: &mut Charged, moment: Moment<'_>) {
        let Some(class) = self.config.catalog.classes.get(charged.class) else { return };
        let due = match moment {
            Moment::Headers(headers) => stated(class, charged, headers, false),
            Moment::Trailers(trailers) => stated(class, charged, trailers, true),
            Moment::End if charged.is_open => self.stated_at_end(class),
            Moment::End => None,
        };
        if due == Some(Due::Refund) {
            self.counting.events.add(Event::CostRefunded, 1);
        }
        let ends = moment == Moment::End && charged.is_in_flight;
        if due.is_some() || moment == Moment::End {
            let due = due.unwrap_or(Due::Units(charged.cost()));
            self.settle(charged, due, ends);
            self.measure_settled(charged, due);
        }
    }

    /// The cost that the metadata of a stream states at its end.
    fn stated_at_end(&mut self, class: &Class) -> Option<Due> {
        // Without a source of the cost there was a response that was not refunded, or none.
        let value = match class.cost.actual.as_ref()? {
            CostSource::Metadata(path) => self.host.property(path).unwrap_or_else(|error| {
                self.log_error("the cost of a request could not be read", error.into());
                None
            }),
            CostSource::ResponseHeader(_) => None,
        };
        let units = value.and_then(|value| units(&value));
        if units.is_none() {
            self.counting.events.add(Event::CostUnknown, 1);
        }
        units.map(Due::Units)
    }
}

/// What the headers or trailers of a response decide. `None` if something later may decide it, or nothing.
fn stated(class: &Class, charged: &Charged, fields: &[u8], are_trailers: bool) -> Option<Due> {
    let fields = HeaderPairs::parse(fields)?;
    let grpc_status = number(fields, "grpc-status").filter(|_| charged.is_grpc);
    let refund = class.refund.as_ref();
    let refunds = match grpc_status {
        Some(status) => refund.is_some_and(|refund| refund.contains_grpc(status)),
        None if are_trailers => false,
        // The status of a gRPC response that succeeds is 200 whatever its gRPC status, which is yet to come.
        None => {
            number(fields, ":status").and_then(|status| u16::try_from(status).ok()).is_some_and(|status| {
                refund.is_some_and(|refund| refund.contains(status)) && !(charged.is_grpc && status == 200)
            })
        }
    };
    if refunds {
        return Some(Due::Refund);
    }
    match &class.cost.actual {
        Some(CostSource::ResponseHeader(name)) => cost(fields, name).map(Due::Units),
        Some(CostSource::Metadata(_)) | None => None,
    }
}

fn number(fields: HeaderPairs<'_>, name: &str) -> Option<u32> {
    str::from_utf8(fields.get(name)?).ok()?.trim_ascii().parse().ok()
}

/// The cost in a header or trailer; `None` unless the response has exactly one of this name.
fn cost(fields: HeaderPairs<'_>, name: &str) -> Option<u32> {
    let mut values = fields.get_all(name);
    let value = values.next().filter(|_| values.next().is_none())?;
    whole_number(value.trim_ascii())
}

/// The cost in a metadata value. Hosts hand over a number as eight bytes: those of a double, or of an integer. A double that is a whole number
/// from 1 is an integer of at least 2⁶¹, which no request costs.
fn units(value: &[u8]) -> Option<u32> {
    whole_number(value).or_else(|| {
        let bytes = value.as_array::<8>()?;
        let (double, integer) = (f64::from_le_bytes(*bytes), u64::from_le_bytes(*bytes));
        if double >= 1.0 && double.fract() == 0.0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            return Some(double as u32);
        }
        (integer < 1 << 61).then(|| u32::try_from(integer).unwrap_or(u32::MAX))
    })
}

/// A whole number in decimal digits; the largest that a count holds for a larger one.
fn whole_number(text: &[u8]) -> Option<u32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let add = |sum: u32, digit: &u8| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    digits.then(|| text.iter().fold(0, add))
}
