//! A foreign future that can neither panic its poller, nor begin or run past its deadline. Needs no runtime.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use executor_api::ExecutorError;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How a contained future ended.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    /// By itself.
    Returned(T),
    /// By a panic, whose message this is.
    Panicked(String),
    /// It was dropped at its deadline.
    GaveUp,
}

impl<T> Ended<T> {
    pub(crate) fn panicked(&self) -> bool {
        matches!(self, Self::Panicked(_))
    }
}

impl<T> Ended<Result<T, ExecutorError>> {
    /// What went wrong, in words; `fine` if nothing did.
    pub(crate) fn problem(&self, fine: &str) -> String {
        match self {
            Self::Returned(Ok(_)) => fine.to_owned(),
            Self::Returned(Err(error)) => error.summary(),
            Self::Panicked(message) => format!("the executor panicked: {message}"),
            Self::GaveUp => "no answer in time".to_owned(),
        }
    }
}

/// See [`contained`].
pub(crate) struct Contained<T> {
    inner: Option<Boxed<T>>,
    deadline: Option<Boxed<()>>,
    begun: bool,
}

/// Contains a future. At the deadline it is dropped before anything is said; an answer that is there by then counts.
/// One that was never polled before its deadline never is.
pub(crate) fn contained<T>(
    inner: impl Future<Output = T> + Send + 'static,
    deadline: Option<Boxed<()>>,
) -> Contained<T> {
    Contained { inner: Some(Box::pin(inner)), deadline, begun: false }
}

impl<T> Future for Contained<T> {
    type Output = Ended<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended<T>> {
        if !std::mem::replace(&mut self.begun, true) && self.is_due(cx) {
            return self.give_up();
        }
        let Some(inner) = self.inner.as_mut() else {
            return Poll::Pending;
        };
        // The future is never polled again after a panic, so that a broken state cannot be seen.
        match catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(cx))) {
            Ok(Poll::Ready(value)) => {
                self.inner = None;
                return Poll::Ready(Ended::Returned(value));
            }
            Err(panic) => {
                // Dropping what panicked may panic again.
                let inner = self.inner.take();
                let _ = catch_unwind(AssertUnwindSafe(|| drop(inner)));
                return Poll::Ready(Ended::Panicked(message(panic.as_ref())));
            }
            Ok(Poll::Pending) => {}
        }
        if self.is_due(cx) { self.give_up() } else { Poll::Pending }
    }
}

impl<T> Contained<T> {
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready())
    }

    fn give_up(&mut self) -> Poll<Ended<T>> {
        let inner = self.inner.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(inner)));
        Poll::Ready(Ended::GaveUp)
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn once<T>(mut contained: Contained<T>) -> Poll<Ended<T>> {
        Pin::new(&mut contained).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_panic_is_an_answer() {
        let end = once(contained(async { panic!("oh {}", "no") }, None::<Boxed<()>>));
        let Poll::Ready(Ended::<()>::Panicked(message)) = end else { panic!("{end:?}") };
        assert_eq!(message, "oh no");
    }

    /// Pending so many times, then ready.
    fn after<T: Send + 'static>(mut times: u32, value: T) -> impl Future<Output = T> + Send + 'static {
        let mut value = Some(value);
        std::future::poll_fn(move |_| match times.checked_sub(1) {
            Some(fewer) => {
                times = fewer;
                Poll::Pending
            }
            None => value.take().map_or(Poll::Pending, Poll::Ready),
        })
    }

    #[test]
    fn at_the_deadline_the_answer_still_counts_if_it_is_there() {
        let due_next = || Some(Box::pin(after(1, ())) as Boxed<()>);
        let mut call = contained(after(1, 7), Some(Box::pin(after(2, ())) as Boxed<()>));
        let mut twice = || Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
        assert!(twice().is_pending());
        assert!(matches!(twice(), Poll::Ready(Ended::Returned(7))));
        assert!(matches!(
            once(contained(std::future::pending::<()>(), due_next())),
            Poll::Ready(Ended::GaveUp)
        ));
    }

    #[test]
    fn a_call_whose_deadline_has_passed_does_not_begin() {
        let due = Some(Box::pin(std::future::ready(())) as Boxed<()>);
        let call = contained(async { panic!("it began") }, due);
        assert!(matches!(once::<()>(call), Poll::Ready(Ended::GaveUp)));
    }
}
