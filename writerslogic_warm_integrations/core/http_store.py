from warm_integrations.core.http_store import *
