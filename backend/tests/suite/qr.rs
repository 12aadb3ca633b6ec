//! Short links as images.

use serde_json::json;

use crate::database::Database;
use crate::service::Service;

#[tokio::test]
async fn the_qr_code_of_a_link_carries_its_short_link_and_is_counted_as_one() {
    let service = Service::start(Database::sqlite()).await;
    let link = service.link(&json!({"url": "https://example.com", "key": "k"})).await;
    let address = link["qrCode"].as_str().unwrap().strip_prefix("https://s.test").unwrap().to_owned();
    //  parameters, and the text, width and colours of the image
    let table: [(&str, u32, [[u8; 3]; 2]); 5] = [
        ("", 600, [[255; 3], [0; 3]]),
        ("&size=203&margin=0&level=H", 203, [[255; 3], [0; 3]]),
        // As the published Python client sends its defaults.
        ("&size=600.0&margin=2.0&level=L&hideLogo=false", 600, [[255; 3], [0; 3]]),
        ("&size=203&includeMargin=false", 203, [[255; 3], [0; 3]]),
        ("&fgColor=%23102030&bgColor=e0f0ff&hideLogo=true", 600, [[0xe0, 0xf0, 0xff], [0x10, 0x20, 0x30]]),
    ];
    for (parameters, width, colors) in table {
        let image = service.bytes(&format!("{address}{parameters}")).await;
        let mut reader = png::Decoder::new(std::io::Cursor::new(&image)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (width, width), "{parameters}");
        assert_eq!(reader.info().palette.as_deref().unwrap(), colors.concat(), "{parameters}");
        let dark = |x: usize, y: usize| pixels[y * info.line_size + x / 8] >> (7 - x % 8) & 1 == 1;
        // With the white margin that readers expect, whatever the image's own is.
        let (width, margin) = (width as usize, 40);
        let side = width + 2 * margin;
        let inside = |at: usize| at.checked_sub(margin).filter(|at| *at < width);
        let greys: Vec<u8> = (0..side * side)
            .map(|place| match (inside(place % side), inside(place / side)) {
                (Some(x), Some(y)) if dark(x, y) => 0,
                _ => 255,
            })
            .collect();
        let mut reader = quircs::Quirc::default();
        let code = reader.identify(side, side, &greys).next().expect("a QR code").unwrap();
        let text = String::from_utf8(code.decode().unwrap().payload).unwrap();
        assert_eq!(text, "https://s.test/r/k?qr=1", "{parameters}");
    }
}

#[tokio::test]
async fn what_no_qr_code_can_be_is_refused_by_name() {
    let service = Service::start(Database::sqlite()).await;
    let (long, long_number) = ("x".repeat(2_954), "7".repeat(2_954));
    let table = [
        ("".to_owned(), "url"),
        (format!("url={long}"), "url"),
        (format!("url={long_number}"), "url"),
        ("url=x&size=20".to_owned(), "size"),
        ("url=x&size=600.5".to_owned(), "size"),
        ("url=x&size=600.".to_owned(), "size"),
        ("url=x&size=.0".to_owned(), "size"),
        ("url=x&size=4097".to_owned(), "size"),
        ("url=x&size=30&margin=64".to_owned(), "size"),
        ("url=x&margin=65".to_owned(), "margin"),
        ("url=x&level=Z".to_owned(), "level"),
        ("url=x&fgColor=red".to_owned(), "fgColor"),
        ("url=x&bgColor=%23fff".to_owned(), "bgColor"),
        ("url=x&logo=https://example.com/logo.png".to_owned(), "logo"),
    ];
    for (query, field) in table {
        let answer = service.get(&format!("/qr?{query}")).await;
        let (status, code, message) = answer.error();
        assert_eq!((status, code), (422, "unprocessable_entity"), "{query}");
        assert!(message.contains(&format!(": {field}: ")), "{query}: {message}");
    }
}
