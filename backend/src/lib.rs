//! A link and analytics API with webhooks.
