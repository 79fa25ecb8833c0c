//! Operations, oracles and helpers shared by the tests of faultless.
