"""The tool of the target `gateway-tools`. Its answer tells the mock what comes next: `then` more calls, or the text."""


def get_weather(city: str, unit: str, then: int) -> str:
    """What the weather is like."""
    return f"3 degrees {unit} in {city} [[mock n={0 if then else 20} gap=0 tools={then}]]"
