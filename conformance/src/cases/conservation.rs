//! Conservation: whole lives, one after another and side by side, leave an empty world.

use std::sync::Arc;

use executor_api::AttemptKey;

use crate::bench::Bench;
use crate::case::{CaseResult, ensure};

pub(crate) async fn ten_lives_leave_nothing(b: Arc<Bench>) -> CaseResult {
    for attempt in 1..=10 {
        life(&b, &b.key("web", 0, attempt)).await?;
        let left = b.inventory().await;
        ensure!(left.is_empty(), "after life {attempt} there is {left:?}");
    }
    Ok(())
}

pub(crate) async fn five_slots_at_once_leave_nothing(b: Arc<Bench>) -> CaseResult {
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..5 {
        let b = Arc::clone(&b);
        tasks.spawn(async move { life(&b, &b.key("web", index, u64::from(index) + 1)).await });
    }
    for ended in tasks.join_all().await {
        ended?;
    }
    let left = b.inventory().await;
    ensure!(left.is_empty(), "after five lives side by side there is {left:?}");
    Ok(())
}

async fn life(b: &Bench, key: &AttemptKey) -> CaseResult {
    let (node, _watch) = b.joined(key).await?;
    b.complete(&node).await?;
    b.absence_counts().await;
    b.end(&node).await
}
