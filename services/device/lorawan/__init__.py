"""LoRaWAN: codecs, frames and their gaps, downlinks, decoding frames again."""
