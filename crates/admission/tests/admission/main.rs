//! The rules of admission, as tables: a request, and what becomes of it. Tests are named by the rule that they show.

#[path = "../../../../e2e/tests/behaviour/cases.rs"]
mod cases;
#[path = "../../../../e2e/tests/cloneset/cases.rs"]
mod clone_cases;
mod cloneset;
mod conversion;
mod defaults;
mod generate;
mod in_place;
mod pods;
mod properties;
mod protection;
mod update;
mod validation;
mod world;
