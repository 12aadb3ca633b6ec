//! `GET /openapi.json`: the description of the API.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

pub(crate) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], include_str!("../../openapi.json"))
}
