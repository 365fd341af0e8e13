"""A client of the hermes_actors broker: publish, receive and pull, on asyncio, trio or without.

`hermes_client.sync` has the same names without async.
"""

from hermes_client.consumer import PullConsumer as PullConsumer
from hermes_client.errors import AckRefused as AckRefused
from hermes_client.errors import CallFailed as CallFailed
from hermes_client.errors import DeliveryMalformed as DeliveryMalformed
from hermes_client.errors import HermesError as HermesError
from hermes_client.errors import MessageInvalid as MessageInvalid
from hermes_client.errors import NotAccepted as NotAccepted
from hermes_client.errors import NotAllowed as NotAllowed
from hermes_client.errors import NotNow as NotNow
from hermes_client.errors import Refuse as Refuse
from hermes_client.errors import SignatureInvalid as SignatureInvalid
from hermes_client.errors import TopicUnknown as TopicUnknown
from hermes_client.exchange import Retries as Retries
from hermes_client.messages import Message as Message
from hermes_client.messages import parse as parse
from hermes_client.publisher import Publisher as Publisher
from hermes_client.publishing import Outgoing as Outgoing
from hermes_client.publishing import Published as Published
from hermes_client.pulling import PulledMessage as PulledMessage
from hermes_client.receiver import Receiver as Receiver
from hermes_client.signatures import Verifier as Verifier
