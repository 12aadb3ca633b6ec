//! The field `RateLimit` of responses.

/// Units left of one of the quotas that a value of `RateLimit` lists.
#[must_use]
pub fn left(value: &str, quota: &str) -> Option<usize> {
    let name = format!("\"{quota}\";r=");
    let rest = value.split(", ").find_map(|listed| listed.strip_prefix(&name))?;
    rest.split(';').next()?.parse().ok()
}
