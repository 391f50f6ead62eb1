"""`tts`: devices of an application of The Things Stack 3, over MQTT or its webhooks."""
