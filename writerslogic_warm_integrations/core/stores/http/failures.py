from warm_integrations.core.stores.http.failures import *
