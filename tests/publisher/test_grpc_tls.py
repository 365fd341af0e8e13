"""The gRPC port with TLS: client certificates, renewed files, and a port in use."""

import grpc
import pytest
import trustme

from hermes_actors.config import GrpcConfig, PublishingAuthenticationConfig
from hermes_actors.config.publishing import GrpcTlsConfig
from hermes_actors.model.topic import PublishingAuth
from hermes_actors.publisher.edges.grpc.server import GrpcServer
from hermes_actors.publisher.edges.listener import PortUnusable
from hermes_actors.runtime import guest
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.security.certificates import CertificateMechanism
from hermes_actors.security.users import Users
from tests.publisher.grpc_scene import message, opened, run

pytestmark = pytest.mark.guest
SERVERS, CLIENTS = trustme.CA(), trustme.CA()


@pytest.fixture
def tls(tmp_path):
    hold(tmp_path)
    return GrpcTlsConfig(
        str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), "required", str(tmp_path / "ca.crt")
    )


def hold(folder, servers=SERVERS):
    leaf = servers.issue_cert("localhost")
    (folder / "tls.crt").write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    (folder / "tls.key").write_bytes(leaf.private_key_pem.bytes())
    (folder / "ca.crt").write_bytes(CLIENTS.cert_pem.bytes())


def credentials_of(name, servers=SERVERS):
    leaf = CLIENTS.issue_cert(common_name=name)
    return grpc.ssl_channel_credentials(
        servers.cert_pem.bytes(),
        leaf.private_key_pem.bytes(),
        b"".join(each.bytes() for each in leaf.cert_chain_pems),
    )


def guarded(*publishers):
    mechanism = CertificateMechanism("common_name", frozenset({"PUBLISHER"}), lambda: Users({}))
    return {
        "topic": {"auth": PublishingAuth(enabled=True, publishers=list(publishers))},
        "parts": {"authenticator": Authenticator([mechanism])},
        "authentication": PublishingAuthenticationConfig(enabled=True),
    }


def test_a_client_certificate_names_the_publisher_and_renewed_files_count_for_new_connections(
    open_world, tls, tmp_path
):
    renewed = trustme.CA()

    async def main():
        config = GrpcConfig(port=0, tls=tls)
        async with opened(
            open_world, grpc_config=config, credentials=credentials_of("shop"), **guarded("shop")
        ) as scene:
            assert (await scene.outcome(message()))[0] == 0
            hold(tmp_path, renewed)
            scene.server.tls.renewed((tmp_path / "tls.crt").read_bytes())
            assert (await scene.outcome(message()))[0] == 0, "a connection keeps what it has"
            other = await scene.connect(credentials_of("other", renewed))
            assert (await other.outcome(message()))[:2] == (7, 403)
            for wrong in (
                credentials_of("shop"),
                grpc.ssl_channel_credentials(renewed.cert_pem.bytes()),
            ):
                refused = await scene.connect(wrong)
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await refused.publish(message())
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE

    run(main)


def test_a_port_in_use_is_told(open_world):
    async def main():
        async with opened(open_world) as scene:
            config, drain = GrpcConfig(port=scene.server.port), scene.world.frontend.drain
            second = GrpcServer(config, drain, None, None, body_bytes_max=1, header_bytes_max=1)
            with pytest.raises(
                PortUnusable, match=r"grpc\.port: cannot listen on 127\.0\.0\.1 port"
            ):
                await guest.call(second.bind)

    run(main)
