import pytest

from services.auth.callout.permissions import (
    InvalidIdentityError,
    Permissions,
    application_permissions,
    device_permissions,
)

HOSTILE = ["", "*", ">", "a.b", "a b", "a/b", "a+", "#", "$SYS", "a\r\nb", "a\tb", "a\0", "ä"]


@pytest.mark.parametrize(
    ("mqtt", "account", "answers"),
    [(True, "THINGWAY", "$MQTT.sub.>"), (False, "OUTSIDE", "_INBOX.sn.6221.>")],
)
def test_a_device_may_use_only_its_own_subjects(mqtt, account, answers):
    """MQTT's delivery subjects are permitted over MQTT only."""
    mapped = ("uplink.*.6221.report", "uplink.*.6221.event", "uplink.*.6221.reply")
    own = ("thing.6221.up.report", "thing.6221.up.event", "thing.6221.up.reply")
    assert device_permissions("6221", mqtt=mqtt) == Permissions(
        publish=own + mapped if mqtt else own,
        subscribe=("thing.6221.down", "thing.6221.down.>", answers),
        account=account,
    )


def test_an_application_may_read_its_tenants_events_by_one_consumer():
    """The consumer has the name of the application."""
    assert application_permissions("app1", "t1") == Permissions(
        publish=(
            "$JS.API.CONSUMER.CREATE.EVENTS.app1.event.t1.>",
            "$JS.API.CONSUMER.INFO.EVENTS.app1",
            "$JS.API.CONSUMER.DELETE.EVENTS.app1",
            "$JS.API.CONSUMER.MSG.NEXT.EVENTS.app1",
            "$JS.ACK.EVENTS.app1.>",
        ),
        subscribe=("event.t1.>", "_INBOX.app.app1.>"),
        account="OUTSIDE",
    )


@pytest.mark.parametrize("sn", HOSTILE)
def test_an_sn_that_would_widen_the_permission_is_refused(sn):
    """Wildcards, separators, blanks and control characters never reach a subject."""
    with pytest.raises(InvalidIdentityError):
        device_permissions(sn, mqtt=True)


@pytest.mark.parametrize("text", HOSTILE)
def test_an_application_or_tenant_that_would_widen_the_permission_is_refused(text):
    """Both arguments must be one plain token."""
    with pytest.raises(InvalidIdentityError):
        application_permissions(text, "t1")
    with pytest.raises(InvalidIdentityError):
        application_permissions("app1", text)


def test_inboxes_of_services_cannot_be_read_from_outside():
    """No device or application has the inbox prefix of a service."""
    for name in ("auth", "device", "sn", "app"):
        inboxes = [
            subject
            for permissions in (
                device_permissions(name, mqtt=False),
                application_permissions(name, "t1"),
            )
            for subject in permissions.subscribe
            if subject.startswith("_INBOX.")
        ]
        assert inboxes == [f"_INBOX.sn.{name}.>", f"_INBOX.app.{name}.>"]
