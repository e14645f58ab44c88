"""The pure state machine: commands in log order go in, offsets and rejections come out."""
