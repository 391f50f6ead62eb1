"""LoRaWAN: codecs of products, frames, downlinks, re-decoding and healing of gaps."""
