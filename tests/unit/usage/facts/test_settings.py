from fastroai.usage.facts.settings import HARMLESS_SETTINGS, SERVER_SIDE_INPUT_SETTINGS


def test_no_setting_is_in_two_groups() -> None:
    assert not HARMLESS_SETTINGS & SERVER_SIDE_INPUT_SETTINGS
