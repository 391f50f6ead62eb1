"""Codecs, frames, downlinks, decoding again and gaps of LoRaWAN devices."""
