//! The deliberate faults by name.

/// Makes the faults and the list of them from one list.
macro_rules! hows {
    ($($name:ident,)+) => {
        /// One deliberate fault each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum How { $($name,)+ }

        /// All of them.
        pub(crate) const ALL: &[How] = &[$(How::$name,)+];
    };
}

hows! {
    NeverLooksFirst,
    TokenFromTheClock,
    AdoptsByNameOnly,
    CreatesUnderAdoptOnly,
    StartsUnderAdoptOnly,
    ReturnsDeadLeases,
    AbsentIsAnError,
    UnknownIsAbsent,
    DestroysForAnybody,
    DestroyReturnsEarly,
    DestroyForgetsTheYoung,
    IgnoresItsDeadline,
    LostAnswersAreRefusals,
    ThrottlesAreAmbiguous,
    HalfAListingIsWhole,
    ListsOnlyItsOwnUid,
    ExitZeroIsNoFailure,
    ForgetsLossAfterTheJoin,
    SharesOneNonce,
    CancelOnlySaysSo,
    CompletingEndsTheNode,
    RemembersOnlyInMemory,
    AcceptsAnySpec,
    ForgetsItsSessions,
    SharesOneLease,
    TellsOnlyEdges,
    NeverFindsAnEndpoint,
    DeadReadsAsAlive,
    RemembersEndpoints,
    AdoptsFailedSessions,
    NumbersDownwards,
    RefusesAnySpec,
    ListsNothing,
    ListsByPrefix,
    AdoptsTheDeadOfTheSlot,
    DeclaresNoDelay,
    NeverTellsOfJoins,
    NoExitIsFailure,
    MakesTwo,
    CompletesOnlyOnce,
    AdoptsOnlyItsCandidate,
    TakesReservedLabels,
    KillsByAddress,
    GivesUpOnEndpoints,
    ForgetsDeathDuringTheBoot,
    FollowsWhateverRuns,
    CancelsWhateverRuns,
    GarbledIsRefused,
    ExpiredIsAmbiguous,
    ExpiredIsDone,
    TellsSecrets,
    ReadsOnePage,
    TrustsShiftingPages,
    LeasesAnySpec,
    TakesAnotherToken,
    DestroysBeforeCancelling,
    StopsAtAnEmptyPage,
}
