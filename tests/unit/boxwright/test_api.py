"""How commands call the API, and what they say when it says no."""

import pytest

from boxwright.access import Key
from boxwright.api import Api, ApiFailure, send_http
from tests.fakes.lifecycle import KEY, Double, item


def api(double: Double) -> Api:
    return Api(f"http://{double.domain}", Key(KEY, "a test"), send_http)


def test_the_key_goes_along(double: Double) -> None:
    """Every call carries the key in the API's own header."""
    api(double).json("/v1/sandboxes", [("pageSize", "1")])
    assert double.keys == [KEY]


def test_all_pages_are_walked(double: Double) -> None:
    """A list longer than a page is read to its end."""
    double.items = [item(number) for number in range(401)]
    assert len(list(api(double).sandboxes())) == 401
    assert len(double.asked) == 3


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((401, {"code": "INVALID_API_KEY", "message": "wrong"}), ("wrong", "a test", "boxwright keys")),
        (
            (409, {"code": "DOCKER::SANDBOX_NOT_RUNNING", "message": "it is paused"}),
            ("it is paused", "resume it"),
        ),
        ((418, {"code": "NEVER_HEARD_OF", "message": "tea"}), ("tea [NEVER_HEARD_OF]",)),
        ((502, "<html>bad gateway</html>"), ("502", "is that address a Boxwright?")),
        ((302, ""), ("302", "is that address a Boxwright?")),
    ],
)
def test_a_refusal_says_why_and_what_to_do(
    double: Double, refusal: tuple[int, object], words: tuple[str, ...]
) -> None:
    """The message, the code, the remedy of the error table; a redirect is not followed with the key."""
    double.refuse["x"] = refusal
    with pytest.raises(ApiFailure) as caught:
        api(double).json("/v1/sandboxes/x")
    assert all(word in str(caught.value) for word in words)
    assert caught.value.status == refusal[0]
    assert len(double.asked) == 1


def test_nobody_there_is_one_clear_instruction(double: Double) -> None:
    """Where nothing listens, the message names the command that starts it."""
    nobody = Api("http://127.0.0.1:1", Key(KEY, "a test"), send_http)
    with pytest.raises(ApiFailure, match=r"boxwright up --detach") as caught:
        nobody.json("/v1/sandboxes")
    assert caught.value.status == 0


def test_the_beginning_of_an_id_is_enough_while_it_is_unique(double: Double) -> None:
    """A prefix stands for one id, or is refused; a whole id is not looked up."""
    double.items = [item(0xAB), item(0xAC)]
    first = double.items[0]["id"]
    assert api(double).whole_id("000000ab") == first
    for ambiguous in ("000000a", "f", ""):
        with pytest.raises(ApiFailure, match="begins with"):
            api(double).whole_id(ambiguous)
    asked = len(double.asked)
    assert api(double).whole_id(first) == first
    assert len(double.asked) == asked
