"""The paths that several routes begin with, and the types of what stands in them."""

from litestar.params import FromPath, FromQuery

Name = FromPath[str]
Flag = FromQuery[bool]

SUBSCRIPTIONS = "/topics/{topic:str}/subscriptions"
SUBSCRIPTION = SUBSCRIPTIONS + "/{name:str}"
