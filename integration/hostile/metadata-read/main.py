"""Asks the metadata services of three clouds for credentials. Of what it gets it prints the length and nothing else, and sends it nowhere."""

import json
import urllib.request

ASKED = {
    "aws token": ("http://169.254.169.254/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT"),
    "aws": ("http://169.254.169.254/latest/meta-data/iam/security-credentials/", {}, "GET"),
    "google": ("http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token", {"Metadata-Flavor": "Google"}, "GET"),
    "azure": ("http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=x", {"Metadata": "true"}, "GET"),
}
got = {}
for cloud, (url, headers, method) in ASKED.items():
    try:
        got[cloud] = len(urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=3).read())
    except OSError as err:
        got[cloud] = str(err)
print(json.dumps(got))
