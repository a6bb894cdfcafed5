from warm_integrations.core.stores.http.server_clock import *
