//! What a case is, and how it can end.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use executor_api::{ExecutorError, ExecutorErrorKind};

use crate::bench::Bench;
use crate::harness::CannotInject;

/// A case on its way.
pub(crate) type Running = Pin<Box<dyn Future<Output = CaseResult> + Send>>;

/// One promise, put to the test on a bench: that of the executors unless another is named.
pub struct Case<B = Bench> {
    /// `promise::what_it_shows`
    pub name: &'static str,
    /// The promise that it belongs to; a heading of the trait docs.
    pub promise: &'static str,
    pub(crate) run: fn(Arc<B>) -> Running,
}

impl<B> fmt::Debug for Case<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

/// Makes, from one list, a table of cases and the macro that turns it into tests.
macro_rules! table {
    (
        $d:tt
        $( #[$about_table:meta] )* $table:ident : $bench:ty,
        $( #[$about_suite:meta] )* $suite:ident : $run:ident,
        $( $promise:ident { $( $case:ident, )+ } )+
    ) => {
        $( #[$about_table] )*
        pub static $table: &[Case<$bench>] = &[ $( $(
            Case {
                name: concat!(stringify!($promise), "::", stringify!($case)),
                promise: stringify!($promise),
                run: |bench| Box::pin($promise::$case(bench)),
            },
        )+ )+ ];

        $( #[$about_suite] )*
        #[macro_export]
        macro_rules! $suite {
            ($d make:expr) => { $(
                mod $promise {
                    #[allow(unused_imports, reason = "the harness is named as outside")]
                    use super::*;
                    $(
                        #[test]
                        fn $case() {
                            let name = concat!(stringify!($promise), "::", stringify!($case));
                            $d crate::$run($d make, name);
                        }
                    )+
                }
            )+ };
        }
    };
}

pub(crate) use table;

/// How a case ended.
pub type CaseResult = Result<(), CaseEnd>;

/// Why a case did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseEnd {
    /// The promise is broken; how.
    Failed(String),
    /// The promise cannot be put to the test here; why.
    Skipped(String),
}

impl From<CannotInject> for CaseEnd {
    fn from(reason: CannotInject) -> Self {
        Self::Skipped(reason.0)
    }
}

impl From<CallEnd> for CaseEnd {
    fn from(end: CallEnd) -> Self {
        Self::Failed(end.to_string())
    }
}

/// How a call ended that did not succeed.
#[derive(Debug)]
pub enum CallEnd {
    /// With an error.
    Error(ExecutorError),
    /// Its deadline passed and its future was dropped.
    GivenUp {
        /// Which call, by the name of its method where it is known.
        call: &'static str,
        /// How long it was given.
        limit: Duration,
    },
}

impl CallEnd {
    /// What the driver would branch on.
    pub fn kind(&self) -> ExecutorErrorKind {
        match self {
            Self::Error(error) => error.kind,
            Self::GivenUp { .. } => ExecutorErrorKind::Ambiguous,
        }
    }
}

impl fmt::Display for CallEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "a call failed that should not: {}", error.summary()),
            Self::GivenUp { call, limit } => write!(f, "{call} did not end by its deadline, after {limit:?}"),
        }
    }
}

/// Ends the case as failed unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::case::CaseEnd::Failed(format!($($why)+)));
        }
    };
}
pub(crate) use ensure;
