//! Properties of a visitor's user agent.

use std::borrow::Cow;
use std::sync::Arc;

use quick_cache::sync::Cache;
use woothee::parser::Parser;

use super::click::kept_text;

const UNKNOWN: Cow<'static, str> = Cow::Borrowed("Unknown");

/// Link preview fetchers and similar programs whose user agents do not identify them as bots.
const PREVIEW_FETCHERS: [&str; 8] = [
    "facebookexternalhit",
    "facebookcatalog",
    "whatsapp/",
    "skypeuripreview",
    "embedly",
    "vkshare",
    "iframely",
    "google-inspectiontool",
];

/// Whether a user agent declares a bot, whichever browser it names besides: a word that ends in `bot`, `crawler` or `spider`,
/// or begins with `headless`, or the address of its operator after a plus sign.
fn declares_bot(lower: &str) -> bool {
    let mut words = lower.split(|character: char| !character.is_ascii_alphabetic());
    // Cubot makes phones.
    let is_bot = |word: &str| {
        word != "cubot" && ["bot", "crawler", "spider"].iter().any(|end| word.ends_with(end))
            || word.starts_with("headless")
    };
    lower.contains("+http://") || lower.contains("+https://") || words.any(is_bot)
}

/// The properties of a user agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agent {
    pub(crate) device: &'static str,
    pub(crate) browser: Cow<'static, str>,
    pub(crate) os: Cow<'static, str>,
    /// The user agent is a crawler or link preview fetcher. HTTP libraries are not bots, because their users follow
    /// links on purpose.
    pub(crate) is_bot: bool,
}

impl Agent {
    pub(crate) fn parse(user_agent: &str) -> Self {
        let lower = user_agent.to_lowercase();
        let is_declared = PREVIEW_FETCHERS.iter().any(|name| lower.contains(name)) || declares_bot(&lower);
        match Parser::new().parse(user_agent) {
            None => Self { device: "Unknown", browser: UNKNOWN, os: UNKNOWN, is_bot: is_declared },
            Some(result) => Self {
                device: match result.category {
                    _ if is_television(result.os, user_agent) => "Smarttv",
                    _ if is_tablet(result.os, user_agent) => "Tablet",
                    "pc" => "Desktop",
                    "smartphone" | "mobilephone" => "Mobile",
                    "appliance" => "Console",
                    _ => "Unknown",
                },
                browser: published_browser(result.name),
                os: published_os(result.os),
                is_bot: is_declared || result.category == "crawler",
            },
        }
    }
}

/// Whether the user agent is a television, for which the parser has no category.
fn is_television(os: &str, user_agent: &str) -> bool {
    let names = ["TV", "BRAVIA", "AFT", "CrKey"];
    os == "DigitalTV" || (os == "Android" && names.iter().any(|name| user_agent.contains(name)))
}

/// Whether the user agent is a tablet, for which the parser has no category. Android browsers include `Mobile` only on
/// phones. Apps, which do not call themselves `Mozilla`, never include it.
fn is_tablet(os: &str, user_agent: &str) -> bool {
    os == "iPad" || (os == "Android" && user_agent.starts_with("Mozilla/") && !user_agent.contains("Mobile"))
}

/// Maps the parser's name of a browser to that of the published API.
fn published_browser(name: &str) -> Cow<'static, str> {
    match name {
        woothee::woothee::VALUE_UNKNOWN => UNKNOWN,
        "Internet Explorer" => Cow::Borrowed("IE"),
        "SamsungBrowser" => Cow::Borrowed("Samsung Internet"),
        "Google Search App" => Cow::Borrowed("GSA"),
        other => Cow::Owned(other.to_owned()),
    }
}

/// Maps the parser's name of an operating system to that of the published API, without a version.
fn published_os(name: &str) -> Cow<'static, str> {
    match name {
        woothee::woothee::VALUE_UNKNOWN => UNKNOWN,
        "Mac OSX" => Cow::Borrowed("Mac OS"),
        "iPhone" | "iPad" | "iPod" => Cow::Borrowed("iOS"),
        "ChromeOS" => Cow::Borrowed("Chrome OS"),
        phone if phone.starts_with("Windows Phone") => Cow::Borrowed("Windows Phone"),
        windows if windows.starts_with("Windows") => Cow::Borrowed("Windows"),
        other => Cow::Owned(other.to_owned()),
    }
}

/// Maximum number of cached user agents.
const REMEMBERED_AGENTS: usize = 10_000;

/// A cache of parsed user agents. Visits repeat the same user agents, and parsing one takes longer than the rest of a
/// redirect.
#[derive(Debug)]
pub(crate) struct Agents {
    read: Cache<String, Arc<Agent>>,
}

impl Default for Agents {
    fn default() -> Self {
        Self { read: Cache::new(REMEMBERED_AGENTS) }
    }
}

impl Agents {
    /// Parses the part of a user agent that is stored. Anybody can send a long one.
    pub(crate) fn parse(&self, user_agent: &str) -> Arc<Agent> {
        let user_agent = kept_text(user_agent);
        if let Some(agent) = self.read.get(user_agent) {
            return agent;
        }
        let agent = Arc::new(Agent::parse(user_agent));
        self.read.insert(user_agent.to_owned(), Arc::clone(&agent));
        agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::click::MAX_KEPT;

    #[test]
    fn the_part_of_a_user_agent_that_is_stored_is_parsed_once() {
        let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
        let padded = |before: usize, text: &str| format!("{}{text}", " ".repeat(before));
        //  user agent, one with the same properties, and its browser
        let table = [
            (firefox.to_owned(), firefox.to_owned(), "Firefox"),
            (
                format!("{firefox} {}", "x".repeat(120_000)),
                format!("{firefox} {}", "x".repeat(2_000)),
                "Firefox",
            ),
            (padded(MAX_KEPT, firefox), padded(MAX_KEPT, "x"), "Unknown"),
            ("é".repeat(MAX_KEPT) + firefox, "é".repeat(MAX_KEPT), "Unknown"),
        ];
        let agents = Agents::default();
        for (text, same, browser) in table {
            let agent = agents.parse(&text);
            assert_eq!(agent.browser, browser, "{} bytes", text.len());
            assert!(Arc::ptr_eq(&agent, &agents.parse(&same)), "{} bytes are parsed again", text.len());
        }
    }

    #[test]
    fn user_agents_are_told_apart() {
        let chrome = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) \
                      Chrome/142.0.0.0 Safari/537.36";
        let iphone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                      Version/18.5 Mobile/15E148 Safari/604.1";
        let ipad = "Mozilla/5.0 (iPad; CPU OS 12_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/12.1.2 \
                    Mobile/15E148 Safari/604.1";
        let android = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 \
                       Mobile Safari/537.36";
        let android_tablet = "Mozilla/5.0 (Linux; Android 14; SM-X200) AppleWebKit/537.36 (KHTML, like Gecko) \
                              Chrome/142.0.0.0 Safari/537.36";
        let television = "Mozilla/5.0 (Linux; Android 12; BRAVIA 4K VH2) AppleWebKit/537.36 (KHTML, like Gecko) \
                          Chrome/142.0.0.0 Safari/537.36";
        let app = "Dalvik/2.1.0 (Linux; U; Android 14; SM-S911B Build/UP1A.231005.007)";
        let windows = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 \
                       Safari/537.36 Edg/142.0.0.0";
        let explorer = "Mozilla/5.0 (Windows NT 6.1; Trident/7.0; rv:11.0) like Gecko";
        let samsung = "Mozilla/5.0 (Linux; Android 14; SM-S911B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/25.0 \
                       Chrome/121.0.0.0 Mobile Safari/537.36";
        let declared_bot = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; SomethingBot/1.0; \
                            +http://bots.example.com/) Chrome/119.0 Safari/537.36";
        let headless = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/142.0.0.0 \
                        Safari/537.36";
        let cubot = "Mozilla/5.0 (Linux; Android 14; CUBOT P80) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 \
                     Mobile Safari/537.36";
        let table = [
            (chrome, "Desktop", "Chrome", "Mac OS", false),
            (iphone, "Mobile", "Safari", "iOS", false),
            (ipad, "Tablet", "Safari", "iOS", false),
            (android, "Mobile", "Chrome", "Android", false),
            (android_tablet, "Tablet", "Chrome", "Android", false),
            (television, "Smarttv", "Chrome", "Android", false),
            (app, "Mobile", "Unknown", "Android", false),
            (windows, "Desktop", "Edge", "Windows", false),
            (explorer, "Desktop", "IE", "Windows", false),
            (samsung, "Mobile", "Samsung Internet", "Android", false),
            ("curl/8.5.0", "Unknown", "HTTP Library", "Unknown", false),
            ("python-requests/2.32", "Unknown", "Unknown", "Unknown", false),
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                "Unknown",
                "Googlebot",
                "Unknown",
                true,
            ),
            ("facebookexternalhit/1.1", "Unknown", "facebook", "Unknown", true),
            (declared_bot, "Unknown", "Chrome", "Unknown", true),
            (headless, "Desktop", "Chrome", "Linux", true),
            ("http.rb/5 (Mastodon/4.4; +https://social.example.com/)", "Unknown", "Unknown", "Unknown", true),
            (cubot, "Mobile", "Chrome", "Android", false),
            ("WhatsApp/2.23.20", "Unknown", "Unknown", "Unknown", true),
            ("", "Unknown", "Unknown", "Unknown", false),
        ];
        for (text, device, browser, os, is_bot) in table {
            let expected = Agent { device, browser: browser.into(), os: os.into(), is_bot };
            assert_eq!(Agent::parse(text), expected, "{text}");
        }
    }
}
