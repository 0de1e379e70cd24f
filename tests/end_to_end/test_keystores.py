"""TLS with the Java keystores of an Artemis instance."""

import pytest

from ..broker_process import BrokerProcess
from ..certificates import Authority
from ..security.test_keystore import PASSWORD, Files
from ..stomp_client import StompClient
from .steps import written


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_clients_connect_with_certificates_that_the_truststore_vouches_for(tmp_path, kind):
    files = Files(tmp_path)
    (tmp_path / "broker.store").write_bytes(files.keystore(kind))
    (tmp_path / "trust.store").write_bytes(files.truststore(kind))
    parameters = (
        f"sslEnabled=true;keyStorePath=broker.store;keyStorePassword={PASSWORD};keyStoreType={kind};needClientAuth=true;"
        f"trustStorePath=trust.store;trustStorePassword={PASSWORD};trustStoreType={kind}"
    )
    config = written(tmp_path, parameters=parameters)
    own = files.issuer.issue("client.pem", client=True)
    stranger = Authority(tmp_path, "stranger").issue("other.pem", client=True)
    with BrokerProcess(config, tmp_path / "data") as broker:
        client = StompClient(broker.port, context=files.issuer.trusting(own))
        client.connect()
        with pytest.raises((OSError, AssertionError)):
            StompClient(broker.port, context=files.issuer.trusting(stranger)).connect()
        broker.wait_for_log("rejected: no issuer in trustStorePath")
