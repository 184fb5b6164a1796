//! Keeps a fixed number of child processes alive; knows no queue and no chat.
