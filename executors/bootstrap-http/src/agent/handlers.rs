//! The agent's answers: each request is one call on this machine's sessions.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bootstrap_hosted::{
    CancelEnd, Content, Glimpse, Host as _, HostError, OutputWanted, Plan, Position, SessionName,
};

use super::door::Door;
use crate::api::{Cancel, FILE_LIMIT, Health, Joined, LookQuery, PROTOCOL, Problem, Start, Started};

/// How much output one look brings at most, whatever is asked for.
const OUTPUT_LIMIT: u64 = 4 * 1024 * 1024;

/// All requests the agent knows. None gets past the door without the token.
pub(super) fn routes(door: Arc<Door>) -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/sessions/{name}", get(look))
        .route("/v1/sessions/{name}/files/{index}", put(put_file).layer(DefaultBodyLimit::max(FILE_LIMIT)))
        .route("/v1/sessions/{name}/plan", put(stage))
        .route("/v1/sessions/{name}/start", post(start))
        .route("/v1/sessions/{name}/joined", post(joined))
        .route("/v1/sessions/{name}/cancel", post(cancel))
        .layer(middleware::from_fn_with_state(Arc::clone(&door), guard))
        .with_state(door)
}

/// A request that was not carried out.
struct Refusal(StatusCode, String);

type Answer<T> = Result<Json<T>, Refusal>;

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(Problem { error: self.1 })).into_response()
    }
}

impl From<HostError> for Refusal {
    fn from(error: HostError) -> Self {
        let status = match error {
            HostError::Unfit(_) => StatusCode::UNPROCESSABLE_ENTITY,
            HostError::Denied(_) | HostError::WrongHost(_) => StatusCode::FORBIDDEN,
            HostError::Unreachable(_) => StatusCode::SERVICE_UNAVAILABLE,
            HostError::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

async fn guard(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    if door.opens(request.headers()) {
        return next.run(request).await;
    }
    tracing::warn!(path = request.uri().path(), "a request without the token was refused");
    Refusal(StatusCode::UNAUTHORIZED, "the token is missing or wrong".to_owned()).into_response()
}

fn session(name: String) -> Result<SessionName, Refusal> {
    SessionName::parse(name).map_err(|error| Refusal(StatusCode::BAD_REQUEST, error.to_string()))
}

async fn health() -> Json<Health> {
    Json(Health { protocol: PROTOCOL })
}

async fn look(
    State(door): State<Arc<Door>>,
    Path(name): Path<String>,
    Query(query): Query<LookQuery>,
) -> Answer<Glimpse> {
    let from = Position { events: query.events, output: query.output };
    let wanted = OutputWanted { limit: query.limit.min(OUTPUT_LIMIT), tail: query.tail };
    Ok(Json(whole_characters(door.host.look(&session(name)?, from, wanted).await?)))
}

/// Leaves a character whose end was not read for the next look: the answer is text, in which half of it would be lost.
fn whole_characters(mut seen: Glimpse) -> Glimpse {
    let half = seen.output.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let goes_on = std::str::from_utf8(half).is_err_and(|error| error.error_len().is_none());
    let left = seen.output.len() - half.len();
    if goes_on && left > 0 {
        seen.output_len -= half.len() as u64;
        seen.output.truncate(left);
    }
    seen
}

async fn put_file(
    State(door): State<Arc<Door>>,
    Path((name, index)): Path<(String, usize)>,
    body: Bytes,
) -> Result<StatusCode, Refusal> {
    door.host.put_file(&session(name)?, index, Content::Bytes(body.to_vec())).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stage(
    State(door): State<Arc<Door>>,
    Path(name): Path<String>,
    Json(plan): Json<Plan>,
) -> Result<StatusCode, Refusal> {
    door.host.stage(&session(name)?, &plan).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn start(
    State(door): State<Arc<Door>>,
    Path(name): Path<String>,
    Json(start): Json<Start>,
) -> Answer<Started> {
    let name = session(name)?;
    let odd = |(name, value): &(String, String)| {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        !plain || name.is_empty() || name.as_bytes()[0].is_ascii_digit() || value.contains('\0')
    };
    if start.environment.iter().any(odd) {
        return Err(Refusal(StatusCode::BAD_REQUEST, "the environment holds what is no variable".to_owned()));
    }
    let standing = door.host.launch(&name, &start.environment).await?;
    tracing::info!(session = %name, ?standing, "a start was asked for");
    Ok(Json(Started { standing }))
}

async fn joined(State(door): State<Arc<Door>>, Path(name): Path<String>) -> Answer<Joined> {
    let at = door.host.mark_joined(&session(name)?).await?;
    Ok(Json(Joined { at: at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() }))
}

async fn cancel(
    State(door): State<Arc<Door>>,
    Path(name): Path<String>,
    Json(cancel): Json<Cancel>,
) -> Answer<CancelEnd> {
    let name = session(name)?;
    let end = door.host.cancel(&name, Duration::from_millis(cancel.grace_ms)).await?;
    tracing::info!(session = %name, ?end, "a cancel was asked for");
    Ok(Json(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bootstrap_hosted::Standing;

    fn cut(output: &[u8]) -> (Vec<u8>, u64) {
        let seen = whole_characters(Glimpse {
            standing: Standing::Running,
            joined_at: None,
            events: String::new(),
            output_at: 0,
            output_size: 99,
            output: output.to_vec(),
            output_len: output.len() as u64,
        });
        (seen.output, seen.output_len)
    }

    #[test]
    fn a_character_that_was_cut_is_left_for_the_next_look() {
        let text = "größe".as_bytes();
        assert_eq!(cut(&text[..3]), (b"gr".to_vec(), 2));
        assert_eq!(cut(text), (text.to_vec(), text.len() as u64));
        // What never becomes a character goes out as it is, and so does half a one that is all there is.
        assert_eq!(cut(b"a\xff"), (b"a\xff".to_vec(), 2));
        assert_eq!(cut(&text[2..3]), (text[2..3].to_vec(), 1));
    }
}
