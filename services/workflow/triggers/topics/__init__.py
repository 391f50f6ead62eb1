"""Topics: each message of a tenant's MQTT clients makes one run of each flow that listens to it."""
