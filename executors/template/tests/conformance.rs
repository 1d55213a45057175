//! The template passes the suite: one test per case.

use executor_template::conformance::TemplateHarness;

conformance::suite!(TemplateHarness::new);
