"""Operations on products, RPS records and device templates."""
