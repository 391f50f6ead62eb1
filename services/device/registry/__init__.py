"""Operations on devices, products, templates, groups and imports."""
