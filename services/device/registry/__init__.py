"""Operations on devices, products, groups and imports."""
