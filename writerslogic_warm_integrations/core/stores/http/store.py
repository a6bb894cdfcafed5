from warm_integrations.core.stores.http.store import *
