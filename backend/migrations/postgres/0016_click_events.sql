-- Events about clicks are deleted with their clicks, which may be sooner than other events.
CREATE INDEX webhook_events_of_clicks ON webhook_events (created_at) WHERE event = 'link.clicked';
