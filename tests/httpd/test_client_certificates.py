import ssl

import pytest
from aiohttp.test_utils import make_mocked_request

from httpd.clients import certificate_names, names_in


def test_the_alternative_names_count_in_any_case() -> None:
    certificate = {
        "subject": ((("commonName", "other"),),),
        "subjectAltName": (
            ("DNS", "Web-1.Example.com"),
            ("IP Address", "10.0.0.1"),
            ("URI", "spiffe://x"),
        ),
    }

    assert names_in(certificate) == {"web-1.example.com", "10.0.0.1"}


def test_the_common_name_counts_only_where_there_is_no_alternative() -> None:
    subject = ((("countryName", "DE"),), (("commonName", "web-1"),))

    assert names_in({"subject": subject}) == {"web-1"}
    assert names_in({"subject": subject, "subjectAltName": (("URI", "spiffe://x"),)}) == frozenset()


@pytest.mark.slow
def test_a_client_that_has_hung_up_speaks_for_nobody_where_clients_may_have_certificates() -> None:
    request = make_mocked_request("DELETE", "/nodes/web-1", sslcontext=ssl.create_default_context())
    request.protocol.transport = None

    assert certificate_names(request) == frozenset()


def test_without_tls_a_client_that_has_hung_up_is_what_its_key_says() -> None:
    request = make_mocked_request("DELETE", "/nodes/web-1")
    request.protocol.transport = None

    assert certificate_names(request) is None
