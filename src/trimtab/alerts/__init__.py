"""Alerts: incidents to a webhook, to Slack or to a command, from the run itself or from a second process."""

from trimtab.alerts.alert import Alert, alert_of
from trimtab.alerts.alert_sink import AlertSink, DeliveryOptions
from trimtab.alerts.run_sentry import RunSentry
from trimtab.alerts.slack_format import slack_escape, slack_payload
from trimtab.alerts.targets import AlertTarget, CommandTarget, DeliveryError, Webhook

__all__ = [
    "Alert",
    "AlertSink",
    "AlertTarget",
    "CommandTarget",
    "DeliveryError",
    "DeliveryOptions",
    "RunSentry",
    "Webhook",
    "alert_of",
    "slack_escape",
    "slack_payload",
]
