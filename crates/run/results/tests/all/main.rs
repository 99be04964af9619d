//! Tests of the cache of results.

mod results;
