//! The chat platforms on loopback, for tests and the demo.
