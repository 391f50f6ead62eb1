"""Operations on devices and groups."""
