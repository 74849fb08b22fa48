"""Looking into compiled steps: pictures, pages, explanations and differences."""
