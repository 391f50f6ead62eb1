"""What flows send outside: HTTP, mail and MQTT, to public addresses or those the operator allows."""
