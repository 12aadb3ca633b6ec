//! The properties by which clicks are filtered and grouped.

/// A property of clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(super) level: Level,
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// The table of a column's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Link,
    Folder,
    Tag,
    Click,
}

impl Column {
    pub(crate) const LINK_ID: Self = Self::of(Level::Link, "l.id");
    pub(crate) const DOMAIN: Self = Self::of(Level::Link, "l.domain");
    pub(crate) const TENANT_ID: Self = Self::of(Level::Link, "l.tenant_id");
    pub(crate) const FOLDER_ID: Self = Self::of(Level::Folder, "l.folder_id");
    pub(crate) const TAG_ID: Self = Self::of(Level::Tag, "g.id");
    pub(crate) const UTM_SOURCE: Self = Self::of(Level::Click, "c.utm_source");
    pub(crate) const UTM_MEDIUM: Self = Self::of(Level::Click, "c.utm_medium");
    pub(crate) const UTM_CAMPAIGN: Self = Self::of(Level::Click, "c.utm_campaign");
    pub(crate) const UTM_TERM: Self = Self::of(Level::Click, "c.utm_term");
    pub(crate) const UTM_CONTENT: Self = Self::of(Level::Click, "c.utm_content");
    pub(crate) const PARTNER_ID: Self =
        Self::by_dialect(Level::Link, "l.details->>'partner_id'", "CAST(l.details AS JSONB)->>'partner_id'");
    pub(crate) const PROGRAM_ID: Self =
        Self::by_dialect(Level::Link, "l.details->>'program_id'", "CAST(l.details AS JSONB)->>'program_id'");
    /// A property that no link has.
    pub(crate) const ABSENT: Self = Self::of(Level::Link, "CAST(NULL AS TEXT)");
    pub(crate) const CONTINENT: Self = Self::of(Level::Click, "c.continent");
    pub(crate) const COUNTRY: Self = Self::of(Level::Click, "c.country");
    pub(crate) const REGION: Self = Self::of(Level::Click, "c.region");
    /// The code of the region without the country.
    pub(super) const REGION_CODE: Self = Self::by_dialect(
        Level::Click,
        "substr(c.region, instr(c.region, '-') + 1)",
        "substr(c.region, strpos(c.region, '-') + 1)",
    );
    pub(crate) const CITY: Self = Self::of(Level::Click, "c.city");
    pub(crate) const DEVICE: Self = Self::of(Level::Click, "c.device");
    pub(crate) const BROWSER: Self = Self::of(Level::Click, "c.browser");
    pub(crate) const OS: Self = Self::of(Level::Click, "c.os");
    pub(crate) const TRIGGER: Self = Self::of(Level::Click, "c.trigger");
    pub(crate) const REFERER: Self = Self::of(Level::Click, "c.referer");
    pub(crate) const REFERER_URL: Self = Self::of(Level::Click, "c.referer_url");
    pub(crate) const URL: Self = Self::of(Level::Click, "c.url");
    /// The destination without its query.
    pub(crate) const BASE_URL: Self = Self::by_dialect(
        Level::Click,
        "substr(c.url, 1, instr(c.url || '?', '?') - 1)",
        "split_part(c.url, '?', 1)",
    );
    /// The URL of the referer without its query.
    pub(crate) const BASE_REFERER_URL: Self = Self::by_dialect(
        Level::Click,
        "substr(c.referer_url, 1, instr(c.referer_url || '?', '?') - 1)",
        "split_part(c.referer_url, '?', 1)",
    );

    const fn of(level: Level, sql: &'static str) -> Self {
        Self::by_dialect(level, sql, sql)
    }

    const fn by_dialect(level: Level, sqlite: &'static str, postgres: &'static str) -> Self {
        Self { level, sqlite, postgres }
    }

    /// Whether only the single click has its value.
    pub(super) fn is_of_click(self) -> bool {
        self.level == Level::Click
    }
}
