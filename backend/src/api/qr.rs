//! `GET /qr`: a QR code of a URL. The `qrCode` field of links contains such an address. The endpoint needs no key,
//! because it reveals no data.

use std::io;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use fast_qr::{ECL, QRBuilder, QRCode};
use png::{BitDepth, ColorType, Compression, Encoder, Filter};

use crate::apart;
use crate::api::state::Shared;
use crate::http::error::{ApiError, Code};
use crate::http::query::Query;

/// Width and height of the image, in pixels: default, minimum and maximum.
pub(crate) const SIZE: (u32, u32, u32) = (600, 21, 4_096);
/// Width of the quiet zone, in modules: default and maximum.
pub(crate) const MARGIN: (u32, u32) = (2, 64);
/// Maximum length of the text, in bytes: the capacity of the largest code at the lowest level of error correction in
/// byte mode. Digits alone would allow more, but the API has one maximum.
pub(crate) const MAX_TEXT: usize = 2_953;
/// The level of error correction: 7, 15, 25 or 30 % of the code may be unreadable.
const LEVELS: [(&str, ECL); 4] = [("L", ECL::L), ("M", ECL::M), ("Q", ECL::Q), ("H", ECL::H)];

/// Maximum wait of a request for others that draw.
const MAX_WAIT: Duration = Duration::from_secs(1);

pub(crate) fn router() -> Router<Shared> {
    Router::new().route("/qr", routing::get(qr))
}

async fn qr(State(app): State<Shared>, query: Query) -> Result<Response, ApiError> {
    let drawing = Drawing::read(&query)?;
    let permit = tokio::time::timeout(MAX_WAIT, Arc::clone(&app.drawing).acquire_owned()).await;
    let permit = permit.map_err(|_elapsed| {
        ApiError::new(Code::ServiceUnavailable, "Too many QR codes at once. Try again later.")
    })?;
    // The thread continues if the client disconnects, and keeps the permit.
    let draw = move || {
        let image = drawing.image();
        drop(permit);
        image
    };
    apart::run(draw).await
}

/// What a request asks for.
#[derive(Debug)]
struct Drawing {
    text: String,
    size: u32,
    margin: u32,
    colors: [[u8; 3]; 2],
    level: ECL,
}

impl Drawing {
    /// Reads and checks the parameters of a request.
    fn read(query: &Query) -> Result<Self, ApiError> {
        let text = query.text("url").ok_or_else(|| {
            ApiError::invalid("invalid_type", "url", "Invalid input: expected string, received undefined")
        })?;
        if query.text("logo").is_some() {
            return Err(ApiError::invalid("custom", "logo", "Logos are not supported."));
        }
        query.boolean("hideLogo")?;
        let number = |name, bounds: std::ops::RangeInclusive<u32>| {
            let message = format!("Too big: expected number to be <={}", bounds.end());
            let bounds = i64::from(*bounds.start())..=i64::from(*bounds.end());
            Ok::<_, ApiError>(
                query.integer(name, bounds, &message)?.and_then(|number| u32::try_from(number).ok()),
            )
        };
        let (size, min_size, max_size) = SIZE;
        let size = number("size", min_size..=max_size)?.unwrap_or(size);
        let (margin, max_margin) = MARGIN;
        let margin = number("margin", 0..=max_margin)?.unwrap_or(margin);
        let margin = if query.boolean("includeMargin")?.unwrap_or(true) { margin } else { 0 };
        let colors = [color(query, "bgColor", [255; 3])?, color(query, "fgColor", [0; 3])?];
        let level = query.choice("level", &LEVELS)?.unwrap_or(ECL::L);
        if text.len() > MAX_TEXT {
            return Err(too_long());
        }
        // A smaller image than that of the smallest code. Larger codes are known when they are made.
        if size < min_size + 2 * margin {
            return Err(too_small());
        }
        Ok(Self { text: text.to_owned(), size, margin, colors, level })
    }

    fn image(&self) -> Result<Response, ApiError> {
        let code = QRBuilder::new(self.text.as_bytes()).ecl(self.level).build().map_err(|_| too_long())?;
        let rows = draw(&code, self.size, self.margin).ok_or_else(too_small)?;
        let image = encode(self.size, &rows, self.colors).map_err(|error| {
            tracing::error!(%error, "could not encode a QR code");
            ApiError::internal()
        })?;
        Ok(([(CONTENT_TYPE, "image/png"), (CACHE_CONTROL, "public, max-age=86400")], image).into_response())
    }
}

fn too_long() -> ApiError {
    ApiError::invalid("too_big", "url", "Too big: the text does not fit into a QR code of this level")
}

fn too_small() -> ApiError {
    ApiError::invalid("too_small", "size", "Too small: the code and its margin do not fit")
}

/// Parses a colour such as `#1a2b3c`. The `#` is optional.
fn color(query: &Query, name: &str, default: [u8; 3]) -> Result<[u8; 3], ApiError> {
    let Some(text) = query.text(name) else { return Ok(default) };
    let mut color = default;
    hex::decode_to_slice(text.strip_prefix('#').unwrap_or(text), &mut color)
        .map_err(|_| ApiError::invalid("custom", name, "Invalid color: expected #rrggbb"))?;
    Ok(color)
}

/// The rows of the image, one bit per pixel, padded to whole bytes. Modules are squares of whole pixels, and the
/// remaining width belongs to the margin. None if a module would be smaller than a pixel.
fn draw(code: &QRCode, size: u32, margin: u32) -> Option<Vec<u8>> {
    let modules = u32::try_from(code.size).ok()?;
    let module = size / (modules + 2 * margin);
    if module == 0 {
        return None;
    }
    let start = (size - module * modules) / 2;
    let (light, before) = (vec![0; size.div_ceil(8) as usize], start as usize);
    let of_modules = code.data.chunks(code.size).take(code.size).map(|modules| {
        let mut row = light.clone();
        for (x, dark) in
            (start..).zip(modules.iter().flat_map(|dark| iter::repeat_n(dark.value(), module as usize)))
        {
            if dark && let Some(pixels) = row.get_mut(x as usize / 8) {
                *pixels |= 0x80 >> (x % 8);
            }
        }
        row.repeat(module as usize)
    });
    let mut rows = light.repeat(before);
    of_modules.for_each(|row| rows.extend(row));
    rows.resize(light.len() * size as usize, 0);
    Some(rows)
}

fn encode(size: u32, rows: &[u8], colors: [[u8; 3]; 2]) -> io::Result<Vec<u8>> {
    let mut image = Vec::new();
    let mut encoder = Encoder::new(&mut image, size, size);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::One);
    encoder.set_palette(colors.concat());
    encoder.set_compression(Compression::Fast);
    // Most rows are equal to the one above.
    encoder.set_filter(Filter::Up);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rows)?;
    writer.finish()?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;

    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::store::sample::{Sample, public};
    use crate::{Backend, Clock, Settings};

    #[test]
    fn one_image_is_drawn_at_a_time_and_others_wait_for_a_while() {
        // With a single thread that draws, a test decides when it does.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(one_image_at_a_time());
    }

    async fn one_image_at_a_time() {
        let store = Sample::new().await.store;
        let backend = Backend::start(store, Clock::system(), Settings::new(public()));
        let (app, router) = (backend.front().app, backend.router());
        let get = |query: &str| {
            let request = Request::get(format!("/qr?{query}")).body(Body::empty()).unwrap();
            router.clone().oneshot(request)
        };
        let (draw, told) = mpsc::channel::<()>();
        let waiting = tokio::task::spawn_blocking(move || told.recv());
        {
            let mut client = pin!(get("url=x"));
            assert!(futures_util::poll!(client.as_mut()).is_pending());
        }
        assert_eq!(app.drawing.available_permits(), 0, "the client has disconnected, and the image is drawn");
        draw.send(()).unwrap();
        waiting.await.unwrap().unwrap();
        let turn = app.drawing.acquire().await.unwrap();
        //  request, status without a turn
        let (fits, too_long) = ("a".repeat(1_273), "a".repeat(1_274));
        for (query, status) in [
            (String::new(), 422),
            ("url=x&size=1".to_owned(), 422),
            ("url=x&size=148&margin=64".to_owned(), 422),
            (format!("url={}", "a".repeat(MAX_TEXT + 1)), 422),
            ("url=x".to_owned(), 503),
        ] {
            let response = get(&query).await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{query}");
            assert_eq!(response.headers().contains_key("retry-after"), status == 503, "{query}");
        }
        drop(turn);
        for (text, status) in [("x", 200), (&fits, 200), (&too_long, 422)] {
            assert_eq!(get(&format!("url={text}&level=H")).await.unwrap().status().as_u16(), status);
        }
    }
}
