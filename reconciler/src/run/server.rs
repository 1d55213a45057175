//! The answering side of a run's control socket, in the process that drives. Translates calls; decides nothing.

use std::sync::{Arc, Weak};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};

use crate::cli::failure::Failure;
use crate::run::live::Live;
use crate::run::protocol::{Answer, Call, Request, VERSION};

/// Serves callers until the task is aborted.
pub(crate) async fn serve(listener: UnixListener, live: Weak<Live>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(live) = live.upgrade() else { return };
                tokio::spawn(async move {
                    // A caller that hangs up is no concern of the driver.
                    let _ = answer_calls(stream, &live).await;
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: try again when some may be free.
                tracing::warn!(%error, "cannot accept a caller on the control socket");
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer_calls(stream: UnixStream, live: &Arc<Live>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let call: Call = match serde_json::from_str(&line) {
            Ok(call) => call,
            Err(error) => {
                let failure =
                    Failure::while_doing("reading a call (another version of this program?)", &error);
                say(&mut writer, &Answer::Failed(failure)).await?;
                continue;
            }
        };
        if call.version != VERSION {
            let message = format!(
                "the driver speaks version {VERSION} of the control protocol and was called in version {}; use the \
                 same version of this program for both",
                call.version
            );
            say(&mut writer, &Answer::Failed(Failure::error(message))).await?;
            continue;
        }
        match call.request {
            Request::Watch => return watch(&mut writer, live).await,
            Request::Events => return events(&mut writer, live).await,
            request => {
                let answer = answer(request, live).await.unwrap_or_else(Answer::Failed);
                if live.is_closing() {
                    // Hanging up tells the caller to look for the next driver, which a failure would not.
                    return Ok(());
                }
                say(&mut writer, &answer).await?;
            }
        }
    }
    Ok(())
}

async fn answer(request: Request, live: &Live) -> Result<Answer, Failure> {
    let notices = match request {
        Request::Status | Request::Watch | Request::Events => {
            return Ok(Answer::Status(Box::new(live.status().await?)));
        }
        Request::Explain { node } => return Ok(Answer::Explained(Box::new(live.explain(&node).await?))),
        Request::Submit { file, text, rebind } => live.submit(&file, text, rebind).await?,
        Request::Scale { group, count } => live.scale(&group, count).await?,
        Request::Replace { node } => live.replace(&node).await?,
        Request::Pause { node, reason } => live.pause(node, reason).await?,
        Request::Resume { node, breach } => live.resume(node, breach).await?,
        Request::HeedPlans => live.heed_plans().await?,
        Request::Destroy => live.destroy().await?,
        Request::Stop => live.ask_to_stop(),
    };
    Ok(Answer::Accepted { generation: live.generation().await, notices })
}

async fn watch(writer: &mut OwnedWriteHalf, live: &Arc<Live>) -> std::io::Result<()> {
    let mut statuses = live.watch();
    while let Some(status) = statuses.recv().await {
        say(writer, &Answer::Status(Box::new(status))).await?;
    }
    Ok(())
}

async fn events(writer: &mut OwnedWriteHalf, live: &Live) -> std::io::Result<()> {
    let mut lines = live.events();
    while let Some(line) = lines.recv().await {
        say(writer, &Answer::Event { line }).await?;
    }
    Ok(())
}

async fn say(writer: &mut OwnedWriteHalf, answer: &Answer) -> std::io::Result<()> {
    let mut text = serde_json::to_string(answer)?;
    text.push('\n');
    writer.write_all(text.as_bytes()).await
}
