from warm_integrations.core.stores.http.retries import *
