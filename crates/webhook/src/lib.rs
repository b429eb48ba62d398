//! Admission and conversion over HTTPS.

#![warn(unreachable_pub)]
pub mod certificates;
pub mod review;
