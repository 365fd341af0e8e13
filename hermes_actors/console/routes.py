"""All routes of the console."""

from litestar import Router
from litestar.exceptions import HTTPException

from hermes_actors.console.console import Console
from hermes_actors.console.pages.apply import apply_pages
from hermes_actors.console.pages.audit import audit_page
from hermes_actors.console.pages.balancer import balancer_pages
from hermes_actors.console.pages.catalog import catalog_pages
from hermes_actors.console.pages.dead_letters import dead_letter_pages
from hermes_actors.console.pages.group import group_page
from hermes_actors.console.pages.messages import message_pages
from hermes_actors.console.pages.overview import overview_page
from hermes_actors.console.pages.retransmission import retransmission_page
from hermes_actors.console.pages.schema import schema_pages
from hermes_actors.console.pages.sign_in import sign_in_page
from hermes_actors.console.pages.subscription import subscription_page
from hermes_actors.console.pages.subscription_actions import action_pages
from hermes_actors.console.pages.subscription_form import subscription_forms
from hermes_actors.console.pages.topic import topic_pages
from hermes_actors.console.pages.topic_form import topic_form_pages
from hermes_actors.console.pages.trace import trace_page
from hermes_actors.errors import HermesError
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.runtime.bridge import BridgeClosed


def console_routes(console: Console) -> Router:
    """The pages below /console. They are not part of the API's description."""

    # The framework copies routers deeply, except for functions.
    def on_error(request: AnyRequest, error: Exception) -> Answer:
        return console.on_error(request, error)

    return Router(
        "/console",
        route_handlers=[
            console.files.route(),
            *sign_in_page(console),
            *overview_page(console),
            *catalog_pages(console),
            *group_page(console),
            *topic_form_pages(console),
            *topic_pages(console),
            *message_pages(console),
            *schema_pages(console),
            *apply_pages(console),
            *subscription_page(console),
            *subscription_forms(console),
            *action_pages(console),
            *retransmission_page(console),
            *dead_letter_pages(console),
            *balancer_pages(console),
            *trace_page(console),
            *audit_page(console),
        ],
        include_in_schema=False,
        exception_handlers=dict.fromkeys(
            (HermesError, HTTPException, BridgeClosed, Exception), on_error
        ),
    )
